-- The life of an order over five streams and two keys: ordered, paid, packed, scanned, and reviewed by an unhappy customer.
SELECT orders.order_id, orders.amount, payments.method, parcels.weight, scans.depot, reviews.stars
FROM orders
JOIN payments ON payments.order_id = orders.order_id
JOIN parcels ON parcels.order_id = orders.order_id
JOIN scans ON scans.parcel_id = parcels.parcel_id
JOIN reviews ON reviews.order_id = orders.order_id AND reviews.stars <= 2
WITHIN 10 MINUTES
