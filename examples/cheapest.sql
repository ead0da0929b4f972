-- The lowest price of every broker's offers that two other banks match: same currency, within 10 seconds.
-- A running aggregate: an epoch sends the groups that have changed (output mode update).
SELECT bank1.broker, min(bank1.price) AS best, count(*) AS matches
FROM bank1 [RANGE 10 SECONDS], bank2 [RANGE 10 SECONDS], bank3 [RANGE 10 SECONDS]
WHERE bank1.currency = bank2.currency AND bank2.currency = bank3.currency
GROUP BY bank1.broker
