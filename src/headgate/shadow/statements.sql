-- The statements of a mirror. `%s` are their values, in the order of the text.

-- name: link
select name, direction, servers, cluster_id, producer_id, topic_prefix, percent, groups,
  extract(epoch from group_interval)::double precision as group_interval_s
from kafka.shadow_links where name = %s

-- name: save_link
insert into kafka.shadow_links as l (name, direction, servers, cluster_id, producer_id, topic_prefix, percent, groups,
  group_interval)
values (%(name)s, %(direction)s, %(servers)s, %(cluster_id)s, %(producer_id)s, %(topic_prefix)s, %(percent)s,
  %(groups)s, make_interval(secs => %(group_interval_s)s))
on conflict (name) do update set servers = excluded.servers, groups = excluded.groups,
  group_interval = excluded.group_interval, seen_at = clock_timestamp(),
  cluster_id = coalesce(l.cluster_id, excluded.cluster_id), producer_id = coalesce(l.producer_id, excluded.producer_id)

-- name: topic
select t.uuid, count(*)::int as partitions, t.configs
from kafka.topics as t join kafka.partitions as p on p.topic_id = t.id where t.name = %s group by t.id

-- name: partition
-- How far a partition is, and what was about to be sent.
select topic_uuid, ext_topic, ext_uuid, mirrored_to, ext_next, records, bytes as size, producer_epoch, epoch_records,
  digest, planned_counts, planned_marks, planned_runs, planned_bases, planned_ends, version
from kafka.shadow_partitions where link = %s and topic = %s and partition = %s

-- name: begin
-- A partition begins, unless somebody was faster.
insert into kafka.shadow_partitions (link, topic, partition, topic_uuid, ext_topic, ext_uuid, mirrored_to, ext_next)
values (%s, %s, %s, %s, %s, %s, %s, %s)
on conflict (link, topic, partition) do nothing

-- name: advance
-- What was done and what comes next, if nobody else has written meanwhile.
update kafka.shadow_partitions set mirrored_to = %s, ext_next = %s, records = %s, bytes = %s, producer_epoch = %s,
  epoch_records = %s, digest = %s, planned_counts = %s, planned_marks = %s, planned_runs = %s, planned_bases = %s,
  planned_ends = %s, version = version + 1, last_error = null, last_error_at = null, updated_at = clock_timestamp()
where link = %s and topic = %s and partition = %s and version = %s

-- name: map
select kafka.shadow_map(%s, %s, %s, %s::bigint[], %s::bigint[], %s::bigint[])

-- name: reject
insert into kafka.shadow_rejected (link, topic, partition, base_offset, end_offset, reason)
values (%s, %s, %s, %s, %s, %s)
on conflict (link, topic, partition, base_offset) do update
  set end_offset = excluded.end_offset, reason = excluded.reason, at = clock_timestamp(), retry = false

-- name: refused_again
update kafka.shadow_rejected set reason = %s, at = clock_timestamp(), retry = false where id = %s

-- name: retries
select id, base_offset, end_offset from kafka.shadow_rejected
where link = %s and topic = %s and partition = %s and retry order by id

-- name: partition_trouble
update kafka.shadow_partitions set last_error = %s, last_error_at = clock_timestamp()
where link = %s and topic = %s and partition = %s

-- name: link_trouble
update kafka.shadow_links set last_error = %s, last_error_at = clock_timestamp() where name = %s

-- name: link_well
update kafka.shadow_links set last_error = null, last_error_at = null
where name = %s and last_error is not null

-- name: stored
-- Stored batches of committed messages from an offset on; rows without a batch tell of aborted ones.
select f.base_offset, f.last_offset, f.data, f.aborted_producers, f.aborted_offsets
from kafka.topics as t join kafka.partitions as p on p.topic_id = t.id
cross join lateral kafka.fetch_from(array[p.part_id], array[%s::bigint], array[%s], %s::bigint, array[true]) as f
where t.name = %s and p.index = %s

-- name: group_offsets
-- Offsets of groups on the topics of a link, where they lie at the other cluster, and what became of them so far. What
-- has been pushed is not translated again, unless all is asked for: groups may have many offsets that never change.
select o.group_id as "group", s.topic, s.partition, s.ext_topic, o.committed_offset as committed,
  case when g.state in ('pushed', 'ahead') and not %s then g.ext_offset
    else kafka.shadow_offset(s.link, s.topic, s.partition, o.committed_offset) end as ext_offset, o.metadata,
  coalesce(g.state, '') as state
from kafka.group_offsets as o
join kafka.topics as t on t.id = o.topic_id
join kafka.shadow_partitions as s on s.topic = t.name and s.topic_uuid = t.uuid and s.partition = o.partition
left join kafka.shadow_groups as g
  on (g.link, g.group_id, g.topic, g.partition) = (s.link, o.group_id, s.topic, s.partition)
  and g.committed_offset = o.committed_offset
where s.link = %s
order by 1, 2, 3

-- name: note_group
insert into kafka.shadow_groups as g (link, group_id, topic, partition, committed_offset, ext_offset, state)
values (%s, %s, %s, %s, %s, %s, %s)
on conflict (link, group_id, topic, partition) do update set
  committed_offset = excluded.committed_offset, ext_offset = coalesce(excluded.ext_offset, g.ext_offset),
  state = excluded.state, updated_at = clock_timestamp()

-- name: lag
-- A link as a whole.
select coalesce(sum(records), 0)::bigint, coalesce(sum(bytes), 0)::bigint, coalesce(max(seconds), 0),
  coalesce(sum(rejected), 0)::bigint, max(last_error)
from kafka.shadow_lag where link = %s

-- name: groups_trouble
update kafka.shadow_links set groups_error = %s, groups_error_at = clock_timestamp() where name = %s

-- name: groups_well
update kafka.shadow_links set groups_error = null, groups_error_at = null where name = %s

-- name: prune
select kafka.shadow_prune(%s)

-- name: resent
delete from kafka.shadow_rejected where id = any(%s)

-- name: links
select l.name, l.direction, l.servers, l.cluster_id, l.topic_prefix, l.percent, l.groups, l.made_at, l.seen_at,
  l.last_error, l.last_error_at, l.groups_error, l.groups_error_at
from kafka.shadow_links as l order by l.name

-- name: topics_of_link
-- Each topic of a link: how far it is, and how far behind. Of a link into this log the lag is not known here.
select s.topic, s.ext_topic, count(*)::int as partitions, sum(s.records)::bigint as mirrored_records,
  sum(s.bytes)::bigint as mirrored_bytes, sum(l.records)::bigint as lag_records, sum(l.bytes)::bigint as lag_bytes,
  max(l.seconds) as lag_seconds,
  (select count(*) from kafka.shadow_rejected as r where r.link = s.link and r.topic = s.topic) as rejected,
  max(s.updated_at) as updated_at, max(s.last_error) as last_error
from kafka.shadow_partitions as s left join kafka.shadow_lag as l using (link, topic, partition)
where s.link = %s group by s.link, s.topic, s.ext_topic order by s.topic

-- name: groups_of_link
-- Offsets of groups as they are here now, and as they were pushed.
select o.group_id as "group", s.topic, s.partition, o.committed_offset, g.committed_offset as pushed_of, g.ext_offset,
  kafka.shadow_offset(s.link, s.topic, s.partition, o.committed_offset) as belongs_at, coalesce(g.state, '') as state,
  g.updated_at
from kafka.group_offsets as o
join kafka.topics as t on t.id = o.topic_id
join kafka.shadow_partitions as s on s.topic = t.name and s.topic_uuid = t.uuid and s.partition = o.partition
left join kafka.shadow_groups as g
  on (g.link, g.group_id, g.topic, g.partition) = (s.link, o.group_id, s.topic, s.partition)
where s.link = %s order by 1, 2, 3

-- name: lock_partition
-- Whoever else brings the same batches waits, and finds them there.
select from kafka.shadow_partitions where link = %s and topic = %s and partition = %s for update

-- name: pass_fence
-- Messages that were written to the other cluster since a topic has moved there belong to the topic.
select set_config('kafka.passes', 'on', true)
from kafka.topics as t join kafka.moves as m on m.topic_id = t.id join kafka.shadow_links as l on l.name = m.link
where t.name = %s and t.move_state = 'moved' and l.cluster_id = %s

-- name: mirrored_there
-- Where a partition ends, and up to where links have mirrored it to a cluster; null: none has.
select p.next_offset, (
  select max(s.ext_next) from kafka.shadow_partitions as s join kafka.shadow_links as l on l.name = s.link
  where s.topic = t.name and s.topic_uuid = t.uuid and s.ext_topic = t.name and s.partition = p.index
    and l.direction = 'out' and l.cluster_id = c.cluster_id)
from (values (%s, %s::int, %s)) as c(topic, partition, cluster_id)
join kafka.topics as t on t.name = c.topic join kafka.partitions as p on p.topic_id = t.id and p.index = c.partition

-- name: producers_to
select producer_id from kafka.shadow_links where direction = 'out' and cluster_id = %s and producer_id is not null
