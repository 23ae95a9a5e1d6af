"""Every message of Berth, its subjects and its encoding. Imports msgspec and itself only."""
