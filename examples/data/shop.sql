CREATE TABLE customers (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL, country TEXT NOT NULL,
    joined_on TEXT NOT NULL
);
CREATE TABLE products (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, category TEXT NOT NULL, price REAL NOT NULL,
    stock INTEGER NOT NULL
);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers,
    product_id INTEGER NOT NULL REFERENCES products, quantity INTEGER NOT NULL,
    status TEXT NOT NULL, ordered_on TEXT NOT NULL
);
CREATE INDEX orders_by_day ON orders (ordered_on);
