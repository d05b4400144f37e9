-- The statements of a cut-over. `%s` are their values, in the order of the text.

-- name: link
select direction, servers, cluster_id, topic_prefix, percent from kafka.shadow_links where name = %s

-- name: topics
-- Topics of a link, with the state of their move and what does not go along.
select t.name, t.move_state, m.link, array_agg(p.part_id order by p.index),
  (select count(*) from kafka.shadow_partitions as s where s.link = %s and s.topic = t.name and s.topic_uuid = t.uuid),
  (select count(*) from kafka.shadow_rejected as r where r.link = %s and r.topic = t.name)
from kafka.topics as t join kafka.parts as p on p.topic_id = t.id left join kafka.moves as m on m.topic_id = t.id
where t.name = any(%s) group by t.id, m.link order by t.name

-- name: link_topics
select distinct topic from kafka.shadow_partitions where link = %s order by topic

-- name: progress
-- How far each partition is mirrored, and what is in its way: where it ends, and open transactions.
select s.topic, s.partition, s.mirrored_to, s.ext_next, s.records, p.next_offset, p.last_stable_offset, p.log_start_offset,
  p.part_id, s.digest
from kafka.shadow_partitions as s
join kafka.topics as t on t.name = s.topic and t.uuid = s.topic_uuid
join kafka.partitions as p on p.topic_id = t.id and p.index = s.partition
where s.link = %s and s.topic = any(%s) order by s.topic, s.partition

-- name: groups
-- Groups that have offsets of these topics, whether members use them, the topics beside, and how many mirrored messages
-- they have not read. Markers of transactions are none.
select o.group_id, coalesce(max(g.state), 'Empty'),
  (select count(*) from kafka.group_members as m where m.group_id = o.group_id),
  array(select distinct x.name from kafka.group_offsets as f join kafka.topics as x on x.id = f.topic_id
    where f.group_id = o.group_id and x.name <> all (%s) order by 1),
  coalesce(sum(s.ext_next - kafka.shadow_offset(
    s.link, s.topic, s.partition, least(greatest(o.committed_offset, p.log_start_offset), s.mirrored_to))), 0)::bigint
from kafka.group_offsets as o join kafka.topics as t on t.id = o.topic_id
join kafka.partitions as p on p.topic_id = o.topic_id and p.index = o.partition
left join kafka.shadow_partitions as s on s.link = %s and s.topic = t.name and s.partition = o.partition
left join kafka.groups as g using (group_id)
where t.name = any(%s) group by o.group_id order by o.group_id

-- name: moved_groups
select group_id, members, node_id is not null from kafka.moved_groups where link = %s order by group_id

-- name: nodes
-- Ids of brokers that clients are told of already: the gateways, and those of further clusters to which topics moved.
select node_id from kafka.brokers
union
select case when broker ->> 'node_id' ~ '^[0-9]{1,9}$' then (broker ->> 'node_id')::int else -1 end
from kafka.moves as m cross join lateral jsonb_array_elements(
  case jsonb_typeof(m.target -> 'brokers') when 'array' then m.target -> 'brokers' else '[]' end) as broker
where m.target ->> 'cluster_id' <> %s

-- name: transactions
-- Transactions that are open in these topics, or hold offsets of these groups.
select t.transactional_id from kafka.open_transactions() as o
join kafka.transactional_ids as t on t.producer_id = o.producer_id and t.number = o.number and t.state = 'Ongoing'
where t.groups && %s::text[] or exists (
  select from kafka.parts as p join kafka.topics as n on n.id = p.topic_id
  where p.part_id = any (t.parts) and n.name = any(%s))
order by 1

-- name: transactional_ids
-- Producers with transactional ids that were seen lately. Which topics they write to is known while they do.
select transactional_id from kafka.transactional_ids where changed_at > now() - interval '1 day' order by 1

-- name: hurry
-- Lets their time be over, so that a gateway aborts them.
update kafka.transactional_ids as t set version = t.version + 1, timeout_ms = 0
from kafka.open_transactions() as o
where t.producer_id = o.producer_id and t.number = o.number and t.state = 'Ongoing' and t.timeout_ms > 0
  and t.transactional_id = any(%s)

-- name: inbox
select count(*) from kafka.inbox as i join kafka.topics as t on t.id = i.topic_id where t.name = any(%s)

-- name: move_topics
select kafka.move_topics(%s, %s, %s, %s)

-- name: close_groups
select kafka.close_groups(%s, %s)

-- name: move_group
select kafka.move_group(%s, %s, %s, %s)

-- name: return_groups
select kafka.return_groups(%s)

-- name: return_offset
insert into kafka.group_offsets as o (group_id, topic_id, partition, committed_offset, leader_epoch, metadata)
select %s, t.id, %s, %s, -1, '' from kafka.topics as t where t.name = %s
on conflict (group_id, topic_id, partition) do update
  set committed_offset = excluded.committed_offset, leader_epoch = -1, metadata = '', committed_at = now()

-- name: source_offset
select kafka.shadow_source_offset(%s, %s, %s, %s)

-- name: lock_link
select pg_try_advisory_lock(hashtextextended('headgate shadow ' || %s, 0))

-- name: unlock_link
select pg_advisory_unlock(hashtextextended('headgate shadow ' || %s, 0))

-- name: moves
select t.name, t.move_state from kafka.moves as m join kafka.topics as t on t.id = m.topic_id
where m.link = %s order by t.name

-- name: ways_back
-- Links that bring messages of that cluster back to these topics.
select l.name, s.topic, s.partition, s.mirrored_to, s.ext_next
from kafka.shadow_links as l join kafka.shadow_partitions as s on s.link = l.name
where l.direction = 'in' and l.cluster_id = %s and s.topic = any(%s) order by 1, 2, 3
