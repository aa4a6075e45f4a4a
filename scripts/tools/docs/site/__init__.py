"""The documentation as a website: Sphinx's configuration, and what the pages need besides."""
