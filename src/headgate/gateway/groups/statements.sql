-- The statements of the groups' store. Each that writes checks the coordinator's epoch, and holds the lease meanwhile.

-- name: claim
-- A new term, if the lease is nobody's, our own, or that of a gateway that is gone. No row: somebody else holds it, or
-- the group has moved to another cluster.
insert into kafka.group_leases as lease (group_id, node_id, instance, epoch)
select who.group_id, who.node_id, who.instance, nextval('kafka.group_epochs')
from (values (%s::text, %s::int, %s::uuid)) as who(group_id, node_id, instance)
where not exists (select from kafka.moved_groups as m where m.group_id = who.group_id)
on conflict (group_id) do update
  set node_id = excluded.node_id, instance = excluded.instance, epoch = excluded.epoch, claimed_at = now()
  where lease.instance = excluded.instance
    or not exists (select from kafka.live_brokers as b where (b.node_id, b.instance) = (lease.node_id, lease.instance))
returning epoch

-- name: release
-- Leases that are given up: the next to be asked may claim them at once.
update kafka.group_leases set instance = '00000000-0000-0000-0000-000000000000', epoch = nextval('kafka.group_epochs')
where instance = %s

-- name: holder
-- Who coordinates a group, if anybody does, and whether the group exists.
select b.node_id, b.host, b.port, b.instance, exists (select from kafka.groups as g where g.group_id = %s)
from (values (0)) as one
left join (
  kafka.group_leases as l join kafka.live_brokers as b on (b.node_id, b.instance) = (l.node_id, l.instance)
) on l.group_id = %s

-- name: epochs
select group_id, epoch from kafka.group_leases where group_id = any(%s)

-- name: load
select kind, head::text, (
  select coalesce(array_agg(m.body::text), '{}') from kafka.group_members as m where m.group_id = g.group_id)
from kafka.groups as g where g.group_id = %s

-- name: save
with lease as materialized (
  select l.group_id from kafka.group_leases as l where l.group_id = %(group_id)s and l.epoch = %(epoch)s for share
), head as (
  insert into kafka.groups as g (group_id, kind, state, protocol_type, generation, head)
  select group_id, %(kind)s, %(state)s, %(protocol_type)s, %(generation)s, %(head)s::json from lease
  on conflict (group_id) do update set
    kind = excluded.kind, state = excluded.state, protocol_type = excluded.protocol_type,
    generation = excluded.generation, head = excluded.head,
    changed_at = case when g.state = excluded.state then g.changed_at else now() end
), gone as (
  delete from kafka.group_members as m using lease
  where m.group_id = lease.group_id and m.member_id = any(%(gone)s)
), there as (
  insert into kafka.group_members (group_id, member_id, instance_id, client_id, client_host, body)
  select lease.group_id, m.member_id, m.instance_id, m.client_id, m.client_host, m.body::json
  from lease, unnest(%(members)s::text[], %(instances)s::text[], %(clients)s::text[], %(hosts)s::text[],
    %(bodies)s::text[]) as m(member_id, instance_id, client_id, client_host, body)
  on conflict (group_id, member_id) do update set
    instance_id = excluded.instance_id, client_id = excluded.client_id, client_host = excluded.client_host,
    body = excluded.body
)
select exists (select from lease)

-- name: commit
-- The offsets of several groups; answers for which of them the lease is still held.
with lease as materialized (
  select l.group_id, l.epoch from kafka.group_leases as l
  join unnest(%s::text[], %s::bigint[]) as h(group_id, epoch) using (group_id, epoch)
  for share of l
), stored as (
  insert into kafka.group_offsets as o
    (group_id, topic_id, partition, committed_offset, leader_epoch, metadata)
  select group_id, c.topic_id, c.partition, c.committed_offset, c.leader_epoch, c.metadata
  from unnest(%s::text[], %s::bigint[], %s::int[], %s::int[], %s::bigint[], %s::int[], %s::bytea[])
    as c(group_id, epoch, topic_id, partition, committed_offset, leader_epoch, metadata)
  join lease using (group_id, epoch)
  order by group_id, c.topic_id, c.partition  -- as the end of a transaction does, or each may wait for the other
  on conflict (group_id, topic_id, partition) do update set
    committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch,
    metadata = excluded.metadata, committed_at = now()
)
select group_id, epoch from lease

-- name: offsets
-- Those that are stored, and those that an open transaction has, seen from one moment.
with pending as (
  select distinct p.topic_id, p.partition
  from kafka.open_transactions() as open join kafka.pending_offsets as p using (number) where p.group_id = %s
)
select t.uuid, t.name, partition, coalesce(o.committed_offset, -1), coalesce(o.leader_epoch, -1),
  coalesce(o.metadata, ''), p.topic_id is null
from (select * from kafka.group_offsets where group_id = %s) as o
full join pending as p using (topic_id, partition)
join kafka.topics as t on t.id = topic_id
order by t.name, partition

-- name: delete_offsets
with lease as materialized (
  select l.group_id from kafka.group_leases as l where l.group_id = %s and l.epoch = %s for share
), gone as (
  delete from kafka.group_offsets as o using lease, unnest(%s::int[], %s::int[]) as d(topic_id, partition)
  where o.group_id = lease.group_id and o.topic_id = d.topic_id and o.partition = d.partition
)
select exists (select from lease)

-- name: delete
select kafka.delete_group(%s, %s)

-- name: forget
-- Terms for groups that were never stored.
delete from kafka.group_leases as l using unnest(%s::text[], %s::bigint[]) as f(group_id, epoch)
where l.group_id = f.group_id and l.epoch = f.epoch
  and not exists (select from kafka.groups as g where g.group_id = l.group_id)

-- name: all
-- Every group, and the node that coordinates it.
select g.group_id, g.kind, g.protocol_type, g.state, b.node_id
from kafka.groups as g
left join kafka.group_leases as l using (group_id)
left join kafka.live_brokers as b on (b.node_id, b.instance) = (l.node_id, l.instance)
order by g.group_id

-- name: expire
select kafka.expire_groups(%s::interval, %s::interval), kafka.expire_group_leases()

-- name: limit_time
select set_config('statement_timeout', %s, true)

-- name: matches
select name from kafka.topics where name ~ ('^(?:' || %s || ')$')
