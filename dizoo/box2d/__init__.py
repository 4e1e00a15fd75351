"""Gymnasium's environments of the physics engine Box2D."""
