-- What programs need that write to the log in bulk, beside gateways: topics, and how far they came.

-- Makes a topic and tells all gateways. Null if there is one of that name. The class is what the settings make it.
create function kafka.create_topic(topic_name text, partitions int, settings jsonb, class_name text, keep_ms bigint)
returns int language plpgsql as $$
declare
  new_id int;
begin
  perform from kafka.catalog for update;
  insert into kafka.topics (name, configs) values (topic_name, settings)
    on conflict (name) do nothing returning id into new_id;
  if new_id is null then
    return null;
  end if;
  insert into kafka.partitions (topic_id, class_id, index)
    select new_id, kafka.class_of(class_name, keep_ms), i from generate_series(0, partitions - 1) as i;
  update kafka.catalog set version = version + 1;
  perform pg_notify('kafka_catalog', topic_name);
  return new_id;
end $$;

-- The last row that a pipeline has put into a partition; written with it, so a replay knows what is there.
create table kafka.deliveries (
  writer text collate "C" not null,
  part_id int not null,
  last_id text collate "C" not null,
  primary key (writer, part_id)
) with (fillfactor = 50);

-- The ids from which on rows are new, one for each partition. Whoever asks holds them until its transaction ends.
create function kafka.deliveries_of(of_writer text, parts int[])
returns table (part_id int, last_id text) language plpgsql as $$
#variable_conflict use_column
begin
  insert into kafka.deliveries (writer, part_id, last_id)
    select of_writer, part, '' from unnest(parts) as part order by part
    on conflict do nothing;
  return query select d.part_id, d.last_id from kafka.deliveries as d
    where d.writer = of_writer and d.part_id = any(parts) order by d.part_id for update;
end $$;
