"""HTTP endpoints of the gateway as data, and their OpenAPI document."""
