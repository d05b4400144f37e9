-- Transactions that have an id, oldest first. A transaction holds the lock on its id until all
-- snapshots see it as ended; pg_locks shows them to every role, which pg_stat_activity's backend_xid does not.
select l.transactionid::text as xid,
       coalesce(a.datname, x.database)::text as database,
       l.pid,
       x.gid as prepared,
       extract(epoch from pg_catalog.clock_timestamp() - a.xact_start)::float8 as age_s,
       extract(epoch from pg_catalog.clock_timestamp() - a.query_start)::float8 as query_age_s,
       a.state
from pg_catalog.pg_locks l
left join pg_catalog.pg_stat_activity a on a.pid = l.pid
left join pg_catalog.pg_prepared_xacts x on x.transaction = l.transactionid
where l.locktype = 'transactionid' and l.mode = 'ExclusiveLock' and l.granted
order by a.xact_start nulls last, l.pid;
