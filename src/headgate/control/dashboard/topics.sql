-- The topics of the log, the fullest first.
select t.name from kafka.topics as t left join kafka.partitions as p on p.topic_id = t.id
group by t.name order by coalesce(sum(p.next_offset - p.log_start_offset), 0) desc, t.name limit 200
