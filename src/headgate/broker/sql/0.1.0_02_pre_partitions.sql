-- Partitions: made ahead of need, without a lock that a publisher would notice.

create function partition_name(of_parent text, of_number bigint) returns text
language sql immutable set search_path from current as $$
  select of_parent || '_' || of_number
$$;

-- CREATE and ATTACH instead of PARTITION OF: that takes SHARE UPDATE EXCLUSIVE, which lets writers and readers through.
create function make_partition(of_parent text, of_number bigint) returns void
language plpgsql set search_path from current as $$
declare
  name text := partition_name(of_parent, of_number);
begin
  execute format('create table %I (like %I including defaults including constraints including storage)',
    name, of_parent);
  execute format('alter table %I attach partition %I for values from (%s) to (%s)',
    of_parent, name, of_number << 32, (of_number + 1) << 32);
  insert into partitions (parent, number) values (of_parent, of_number);
end $$;

create function make_partitions(of_parent text, up_to bigint) returns int
language plpgsql set search_path from current as $$
declare
  n bigint;
  made int := 0;
begin
  for n in select g from generate_series((select coalesce(max(number) + 1, 0) from partitions where parent = of_parent),
    up_to) as g
  loop
    perform make_partition(of_parent, n);
    made := made + 1;
  end loop;
  return made;
end $$;

create function partitions_ahead() returns int language sql stable set search_path from current as $$
  select greatest(2, least(1000, ceil(extract(epoch from config_value('future_intervals_to_create')::interval)
    / extract(epoch from config_value('partition_interval')::interval))))::int
$$;

select make_partitions(parent, partitions_ahead())
from unnest(array['events', 'deliveries', 'batches']) as parent;
update partitions set opened_at = now() where number = 0;
