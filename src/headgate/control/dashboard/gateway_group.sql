-- A group: its members, and the lag of every partition that it has an offset of. No row: there is none of the name.
-- Of a member's record, the partitions it has: a consumer's by name, a classic one's as its leader has written them.
with lags as materialized (
  select t.name as topic, o.partition, o.committed_offset as committed, p.next_offset as next,
    greatest(p.next_offset - greatest(o.committed_offset, p.log_start_offset), 0) as lag,
    extract(epoch from now() - o.committed_at) as age_s
  from group_offsets as o
  join topics as t on t.id = o.topic_id
  join partitions as p on p.topic_id = o.topic_id and p.index = o.partition
  where o.group_id = %(group)s
)
select jsonb_build_object(
  'group_id', i.group_id,
  'state', coalesce(g.state, 'Empty'),
  'kind', g.kind,
  'generation', g.generation,
  'member_count', (select count(*) from group_members as m where m.group_id = i.group_id),
  'members', (select coalesce(jsonb_agg(m order by m.member_id), '[]') from (
    select member_id, instance_id, client_id, client_host,
      case when length(body::text) < 1000000 then body ->> 'assignment' end as assignment,
      case when length(body::text) < 1000000 then (
        select coalesce(jsonb_agg(jsonb_build_array(t.name, each -> 1)), '[]')
        from json_array_elements(body -> 'assigned') as each join topics as t on t.uuid::text = each ->> 0) end as assigned
    from group_members where group_id = i.group_id order by member_id limit 100) as m),
  'lag', (select sum(lag) from lags),
  'partition_count', (select count(*) from lags),
  'partitions', (select coalesce(jsonb_agg(l order by l.lag desc, l.topic, l.partition), '[]') from (
    select * from lags order by lag desc, topic, partition limit 300) as l)
)
from (select %(group)s::text collate "C" as group_id) as i
left join groups as g on g.group_id = i.group_id
where g.group_id is not null or exists (select from lags)
