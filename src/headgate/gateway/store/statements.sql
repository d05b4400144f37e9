-- The statements of the store. `%s` are their values, in the order of the text.

-- name: lock_catalog
select version from kafka.catalog for update

-- name: change_catalog
-- Queues behind other changes, and tells all gateways when the transaction commits.
update kafka.catalog set version = version + 1 returning version, pg_notify(%s, %s)

-- name: catalog_version
select version from kafka.catalog

-- name: topics
select t.id, t.uuid, t.name, t.configs, array_agg(p.part_id order by p.index), t.move_state, m.target
from kafka.topics as t join kafka.parts as p on p.topic_id = t.id left join kafka.moves as m on m.topic_id = t.id
group by t.id, m.target

-- name: topic_by_name
select t.id, t.uuid, t.name, t.configs, array_agg(p.part_id order by p.index), t.move_state, m.target
from kafka.topics as t join kafka.parts as p on p.topic_id = t.id left join kafka.moves as m on m.topic_id = t.id
where t.name = %s
group by t.id, m.target

-- name: topic_by_uuid
select t.id, t.uuid, t.name, t.configs, array_agg(p.part_id order by p.index), t.move_state, m.target
from kafka.topics as t join kafka.parts as p on p.topic_id = t.id left join kafka.moves as m on m.topic_id = t.id
where t.uuid = %s
group by t.id, m.target

-- name: moved_groups
select group_id, node_id, host, port from kafka.moved_groups

-- name: create_topics
insert into kafka.topics (name, configs) select * from unnest(%s::text[], %s::jsonb[])
on conflict (name) do nothing returning id, uuid, name

-- name: class_of
select kafka.class_of(%s, %s)

-- name: create_partitions
-- For each topic those from one number up to another. As the view would do it, but all at once.
with made as (
  insert into kafka.parts (topic_id, class_id, index)
  select t.id, t.class_id, i
  from unnest(%s::int[], %s::int[], %s::int[], %s::int[]) as t(id, class_id, first, stop)
  cross join lateral generate_series(t.first, t.stop - 1) as i
  returning part_id, topic_id, index
), states as (
  insert into kafka.states (part_id) select part_id from made
)
select topic_id, array_agg(part_id order by index) from made group by topic_id

-- name: delete_topic
select kafka.delete_topic(%s)

-- name: alter_topic
select kafka.alter_topic(%s, %s, %s, %s)

-- name: bounds
select part_id, next_offset, log_start_offset, last_stable_offset from kafka.partitions where part_id = any(%s::int[])

-- name: at_time
select base_offset, last_offset, data from kafka.at_time(%s, %s, %s)

-- name: delete_records
select log_start_offset, next_offset from kafka.delete_records(%s, %s)

-- name: sizes
select part_id, size from kafka.partitions where part_id = any(%s::int[])

-- name: new_producer_id
select nextval('kafka.producer_ids')

-- name: producers
select producer_id, epoch, last_seqs[1], (extract(epoch from seen_at) * 1000)::bigint
from kafka.producers where part_id = %s order by producer_id

-- name: notify
-- Nobody has to wait for the disk: a notification that a crash swallows is about a server that was there before it.
select set_config('synchronous_commit', 'off', true), pg_notify('kafka_log', %s)

-- name: max_timestamp
-- Of all batches that are alive: the greatest ever may be deleted.
select max(b.max_ts) from kafka.partitions as p
cross join lateral kafka.spans_from(p.part_id, p.log_start_offset) as s
cross join lateral (
  select max_ts from kafka.batches as b
  where b.segment_id = s.segment_id and b.part_id = p.part_id and b.attrs & 32 = 0
    and b.last_offset >= greatest(p.log_start_offset, s.start) and b.last_offset < s.stop
) as b
where p.part_id = %s having max(b.max_ts) is not null

-- name: full_classes
select class_id from kafka.full_classes(%s, %s)

-- name: open_segment
select kafka.open_segment(%s)

-- name: expired
select part_id, new_start from kafka.expired(%s, %s, %s)

-- name: dead_spans
select part_id, first_offset, segment_id, stop from kafka.dead_spans()

-- name: bury
select kafka.bury(%s, %s, %s, %s)

-- name: dead_segments
-- Closed segments in which nothing is alive, and how far they have come on their way out.
select s.id, case when i.inhrelid is null then 'detached' when i.inhdetachpending then 'pending' else 'attached' end
from kafka.segments as s
join pg_class as c on c.oid = to_regclass('kafka.segment_' || s.id)
left join pg_inherits as i on i.inhrelid = c.oid
where s.closed_at is not null and not exists (select from kafka.spans as x where x.segment_id = s.id)
order by s.id

-- name: sparse_segments
select segment_id, share from kafka.sparse_segments()

-- name: thin
select kafka.thin(%s, %s)

-- name: forget_segment
delete from kafka.segments where id = %s

-- name: forget_producers
-- As Kafka: a producer that is silent for a day, and comes back, begins anew.
delete from kafka.producers where seen_at < now() - interval '1 day'

-- name: compactable
-- Not behind the beginning of an open transaction.
select p.part_id, t.configs, p.log_start_offset, p.compacted_to, least(p.compact_next, p.last_stable_offset),
  p.next_offset
from kafka.partitions as p join kafka.topics as t on t.id = p.topic_id
where t.configs ->> 'cleanup.policy' like '%compact%' and p.next_offset > p.log_start_offset

-- name: compact_next
update kafka.partitions set compact_next = next_offset where part_id = %s

-- name: compacted
update kafka.partitions set compacted_to = greatest(compacted_to, %s) where part_id = %s

-- name: replace_batch
select kafka.replace_batch(%b, %b, (%b::kafka.incoming[])[1], %b, %b)

-- name: remove_batch
select kafka.replace_batch(%b, %b, null, null, null)

-- name: forget_abort
-- That of a marker: without it readers would wait for the marker, and leave out what the producer wrote later.
delete from kafka.aborted where part_id = %s and last_offset = %s

-- name: aborted_among
select a.* from kafka.aborted_among(%s, %s, %s) as f
cross join lateral unnest(f.producers, f.offsets) as a(producer_id, first_offset)

-- name: forget_aborted
-- Of what is no longer there.
delete from kafka.aborted as a
using (
  select d.part_id, p.log_start_offset from (select distinct part_id from kafka.aborted) as d
  left join kafka.partitions as p on p.part_id = d.part_id
) as part
where a.part_id = part.part_id and (part.log_start_offset is null or a.last_offset < part.log_start_offset)

-- name: forget_transactional_ids
-- As Kafka: those that nobody has used for a week.
delete from kafka.transactional_ids where state <> 'Ongoing' and changed_at < now() - interval '7 days'

-- name: shrink
update kafka.partitions set size = size - %s where part_id = %s

-- name: lock_head
select from kafka.head for update

-- name: take_inbox
select * from kafka.take_inbox(%s, %s, %s)

-- name: inbox_moment
-- The last id that was given, the oldest transaction that has written and not ended, and, seen from the same moment,
-- whether anything waits.
select (select last_value - (not is_called)::int from kafka.inbox_id_seq),
  pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
  (select id from kafka.inbox where id >= %s order by id limit 1) is not null  -- by the index, past what was taken

-- name: inbox_mark
-- A transaction that is younger than all that have written. The end of a snapshot is not: it is one more than the last
-- that has ended, and those that run may lie behind it.
select pg_current_xact_id()::text::bigint

-- name: reject_taken
insert into kafka.inbox_rejected (id, topic_id, partition, key, value, headers, written_at, reason)
values (%s, %s, %s, %s, %s, %s::text::jsonb, to_timestamp(%s / 1000.0), %s) on conflict (id) do nothing

-- name: reject_oldest
select kafka.reject(id, %s) from kafka.inbox order by id limit 1

-- name: forget_rejected
delete from kafka.inbox_rejected where rejected_at < now() - interval '30 days'

-- name: pass_fences
-- What was committed to the inbox before its topic was fenced belongs to the topic.
select set_config('kafka.passes', 'on', false)

-- name: inbox_topics
-- Those that have been closed take nothing more; what waited when they were fenced still gets in.
select t.id, t.configs, case when t.move_state in ('closed', 'moved') then '{}' else array_agg(p.part_id order by p.index) end
from kafka.topics as t join kafka.parts as p on p.topic_id = t.id
where t.id = any(%s::int[]) group by t.id

-- name: drop_empty_spans
select kafka.drop_empty_spans(%s)

-- name: dirty_bytes
select coalesce(sum(b.size), 0)::bigint from kafka.spans_from(%(part)s, %(first)s) as s
cross join lateral (
  select size from kafka.batches as b
  where b.segment_id = s.segment_id and b.part_id = %(part)s
    and b.last_offset >= greatest(s.start, %(first)s) and b.last_offset < least(s.stop, %(stop)s)
) as b
