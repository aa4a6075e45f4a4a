CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket;
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
-- Who asks whether the server is well, and may do nothing else.
CREATE USER IF NOT EXISTS mysql@localhost IDENTIFIED VIA unix_socket;
