-- Topics and groups of the gateway whose names contain a text, as one object.
select jsonb_build_object(
  'topics', (select coalesce(jsonb_agg(t order by t.name), '[]') from (
    select t.name, count(p.*) as partitions, coalesce(sum(p.next_offset - p.log_start_offset), 0) as records,
      coalesce(sum(p.size), 0) as bytes
    from (select id, name from topics where position(%(wanted)s in lower(name)) > 0 order by name limit 100) as t
    left join partitions as p on p.topic_id = t.id group by t.name) as t),
  'topic_count', (select count(*) from topics where position(%(wanted)s in lower(name)) > 0),
  'groups', (select coalesce(jsonb_agg(g order by g.group_id), '[]') from (
    select i.group_id, coalesce(g.state, 'Empty') as state,
      (select count(*) from group_members as m where m.group_id = i.group_id) as members,
      (select sum(greatest(p.next_offset - greatest(o.committed_offset, p.log_start_offset), 0))
        from group_offsets as o join partitions as p on p.topic_id = o.topic_id and p.index = o.partition
        where o.group_id = i.group_id) as lag
    from (select group_id from (select group_id from groups union select group_id from group_offsets) as every
      where position(%(wanted)s in lower(group_id)) > 0 order by 1 limit 100) as i
    left join groups as g on g.group_id = i.group_id) as g),
  'group_count', (select count(*) from (select group_id from groups union select group_id from group_offsets) as every
    where position(%(wanted)s in lower(group_id)) > 0)
)
