"""The demo: ten devices, their own skewed shares of real images, one service, four methods side by side."""
