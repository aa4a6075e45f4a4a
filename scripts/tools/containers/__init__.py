"""Test the containers of docker-compose.yml, on a private Docker engine if needed."""
