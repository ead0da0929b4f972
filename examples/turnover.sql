-- Turnover by way of payment and five minutes. A window is sent once, when no row can change it any more (append),
-- so that files can take it.
SELECT window.start AS since, payments.method, count(*) AS orders, round(sum(orders.amount), 2) AS turnover
FROM orders JOIN payments USING (order_id) WITHIN 2 MINUTES
GROUP BY window(result_time, '5 minutes'), payments.method
