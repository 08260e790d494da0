"""SAKURA: template-based image editing whose reusable attention KV streams to the device."""
