-- Once, by the database server's administrator, connected to the database "postgres". Choose the three passwords.
-- What each role may do comes with the migrations: the owner owns tables and triggers, remit_app runs the application
-- and can't set a balance, remit_read only looks, remit_producer lets other programs send events of their own through the
-- outbox. Nobody logs in as one of these four.
CREATE ROLE remit_owner NOLOGIN;
CREATE ROLE remit_app NOLOGIN;
CREATE ROLE remit_read NOLOGIN;
CREATE ROLE remit_producer NOLOGIN;

-- For `remit migrate up`. CREATEROLE, since the migrations see to it that the four roles above are there.
CREATE ROLE remit_migrator LOGIN CREATEROLE PASSWORD 'migrator-secret';
GRANT remit_owner TO remit_migrator;

-- For `remit worker` and the commands; a worker refuses to start with more rights than these.
CREATE ROLE remit_worker LOGIN PASSWORD 'worker-secret';
GRANT remit_app TO remit_worker;

-- For people and reports.
CREATE ROLE remit_reader LOGIN PASSWORD 'reader-secret';
GRANT remit_read TO remit_reader;

-- An administrator who isn't a superuser (RDS, Cloud SQL) may give a database only to a role that it belongs to.
GRANT remit_owner TO CURRENT_USER;
CREATE DATABASE remit OWNER remit_owner;
REVOKE CONNECT ON DATABASE remit FROM PUBLIC;
GRANT CONNECT ON DATABASE remit TO remit_owner, remit_app, remit_read, remit_producer;
