-- What a server knows about replication and locks. No text of a query: there may be rows in it.
select jsonb_build_object(
  'version', version(),
  'settings', (select jsonb_object_agg(name, setting) from pg_settings where name in (
    'wal_level', 'max_replication_slots', 'max_wal_senders', 'max_slot_wal_keep_size', 'wal_sender_timeout',
    'idle_replication_slot_timeout', 'jit', 'lc_messages', 'server_encoding', 'max_connections')),
  'in_recovery', pg_is_in_recovery(),
  'slots', (select coalesce(jsonb_agg(to_jsonb(s) order by s.slot_name), '[]') from pg_replication_slots as s),
  'replication', (select coalesce(jsonb_agg(r), '[]') from (
    select pid, application_name, state, sent_lsn, write_lsn, flush_lsn, write_lag, flush_lag
    from pg_stat_replication order by pid limit 50) as r),
  'publications', (select coalesce(jsonb_agg(to_jsonb(p) order by p.pubname), '[]') from pg_publication as p),
  'sessions', (select coalesce(jsonb_agg(a), '[]') from (
    select pid, application_name, backend_type, state, wait_event_type, wait_event,
      extract(epoch from now() - xact_start)::int as transaction_s,
      extract(epoch from now() - state_change)::int as in_state_s, pg_blocking_pids(pid) as blocked_by
    from pg_stat_activity where datname = current_database() or datname is null
    order by xact_start nulls last limit 100) as a),
  'locks', (select coalesce(jsonb_agg(l), '[]') from (
    select pid, locktype, relation::regclass::text as relation, mode, granted
    from pg_locks where not granted or locktype = 'advisory' order by granted, pid limit 100) as l))
