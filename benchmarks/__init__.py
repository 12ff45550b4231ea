"""The measurements that the documentation's numbers come from."""
