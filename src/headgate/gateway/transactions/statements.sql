-- The statements of transactions. Each that changes something takes the lock of the log, and nothing if the state is no
-- longer the one that was read.

-- name: find
-- A transactional id; no row if there is none.
select t.transactional_id, t.version, t.producer_id, t.epoch, t.last_producer_id, t.last_epoch, t.timeout_ms, t.state,
  t.is_implicit, (extract(epoch from t.started_at) * 1000)::bigint, t.parts, t.groups
from kafka.transaction_of(%s) as t where t.transactional_id is not null

-- name: all
select t.transactional_id, t.version, t.producer_id, t.epoch, t.last_producer_id, t.last_epoch, t.timeout_ms, t.state,
  t.is_implicit, (extract(epoch from t.started_at) * 1000)::bigint, t.parts, t.groups
from kafka.transactional_ids as t where %s::text is null or t.transactional_id ~ ('^(?:' || %s || ')$')
order by t.transactional_id

-- name: of_producer
select t.transactional_id from kafka.transactional_ids as t where t.producer_id = %s

-- name: limit_time
select set_config('statement_timeout', %s, true)

-- name: new_producer_id
select nextval('kafka.producer_ids')

-- name: old_gateways
-- Those that would serve what is not committed.
select host || ':' || port from kafka.brokers where expires_at > now() and protocol < %s

-- name: extend
select kafka.extend_transaction(%s, %s, %s::int[], %s::text[])

-- name: change
select kafka.change_transaction(%s, %s, %s, %s, %s, %s, %s, %s, %s)

-- name: finish
-- The marker as a batch for any partition: producer id and epoch, size, time and bytes.
select part_id, base_offset, log_start_offset, last_stable_offset
from kafka.end_transaction(%(id)s, %(version)s, %(is_commit)s,
  array[row(null, 1, %(size)s, 48::smallint, %(marker_epoch)s::smallint, -1, %(now_ms)s, %(now_ms)s, %(marker_id)s,
    null, null, null, null, null, %(marker)s, null)::kafka.incoming],
  %(state)s, %(producer_id)s, %(epoch)s, %(last_producer_id)s, %(last_epoch)s, %(timeout_ms)s, %(is_implicit)s)

-- name: pend
select kafka.pend_offsets(%s, %s, %s, %s, %s, %s, %s::int[], %s::int[], %s::bigint[], %s::int[], %s::bytea[])

-- name: overdue
select transactional_id, version from kafka.overdue_transactions()

-- name: open_in
-- The open transactions of a partition: producer and first offset.
select o.producer_id, o.first_offset
from (
  select * from kafka.states as s where (s.part_id, s.version) <= (%s, 9223372036854775807)
  order by s.part_id desc, s.version desc limit 1
) as state
cross join lateral unnest(state.open_producers, state.open_offsets) as o(producer_id, first_offset)
where state.part_id = %s
