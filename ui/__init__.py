"""The page: what people see of SAKURA in a browser."""
