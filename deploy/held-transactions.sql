-- Who keeps VACUUM from removing dead rows, the oldest first: sessions, replication slots, prepared transactions. Without
-- pg_read_all_stats (GRANT pg_read_all_stats TO …) since when and what a session does is hidden; its pid and age are not.
SELECT *
  FROM (SELECT 'session' AS holder, a.pid::text AS name, greatest(age(a.backend_xid), age(a.backend_xmin)) AS transactions,
               a.xact_start AS since, a.usename AS role, a.application_name AS program, a.state, left(a.query, 60) AS query
          FROM pg_stat_activity a
         WHERE a.pid <> pg_backend_pid()
           AND (a.datid IS NULL OR a.datname = current_database())
        UNION ALL
        SELECT 'slot', slot_name, age(xmin), NULL, NULL, plugin, CASE WHEN active THEN 'active' ELSE 'inactive' END, NULL
          FROM pg_replication_slots
        UNION ALL
        SELECT 'prepared', gid, age(transaction), prepared, owner, NULL, NULL, NULL
          FROM pg_prepared_xacts
         WHERE database = current_database()) held
 WHERE transactions > 0
 ORDER BY transactions DESC;
