"""Where results go in other people's software. Each module needs an extra, and imports it only when it is used."""
