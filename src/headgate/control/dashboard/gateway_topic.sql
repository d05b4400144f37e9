-- A topic: what is set for it, and its partitions. No row: there is none of the name.
select jsonb_build_object(
  'name', t.name,
  'configs', t.configs,
  'created_at', extract(epoch from t.created_at),
  'partition_count', (select count(*) from partitions as p where p.topic_id = t.id),
  'fullest', (select p.index from partitions as p where p.topic_id = t.id
    order by p.next_offset - p.log_start_offset desc, p.index limit 1),
  'partitions', (select coalesce(jsonb_agg(p order by p.partition), '[]') from (
    select index as partition, log_start_offset as first, next_offset as next, size as bytes
    from partitions where topic_id = t.id order by index limit 200) as p),
  'groups', (select coalesce(jsonb_agg(g order by g.lag desc, g.group_id), '[]') from (
    select o.group_id, sum(greatest(p.next_offset - greatest(o.committed_offset, p.log_start_offset), 0)) as lag
    from group_offsets as o join partitions as p on p.topic_id = o.topic_id and p.index = o.partition
    where o.topic_id = t.id group by o.group_id order by 2 desc, 1 limit 50) as g)
) from topics as t where t.name = %(topic)s
