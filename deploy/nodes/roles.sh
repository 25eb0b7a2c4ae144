#!/bin/sh
# The roles and the database of a memory, made where the server is made: docs/POSTGRES.md says why these.
set -eu
password=$(cat /run/secrets/database-password)
psql --set=ON_ERROR_STOP=1 --set=password="$password" --username postgres <<'SQL'
CREATE ROLE muniment LOGIN NOINHERIT PASSWORD :'password';
CREATE ROLE muniment_whole NOLOGIN;
GRANT muniment_whole TO muniment;
CREATE DATABASE memory OWNER muniment ENCODING 'UTF8';
SQL
