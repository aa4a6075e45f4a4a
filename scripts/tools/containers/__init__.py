"""The containers of docker-compose.yml, tried on a Docker engine of one's own."""
