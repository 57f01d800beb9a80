"""How far a model of finite temperature is from its spec."""
