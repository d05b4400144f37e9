-- Types that are not built in, with what their values' text form depends on: those that were asked for, and all that
-- they are made of. Null asks for all.
-- Arrays are recognised by being some type's typarray: typelem alone would also match point and int2vector.
with recursive needed (oid) as (
  select u.oid from unnest(%(types)s::oid[]) u (oid)
  union
  select part.oid
  from needed
  join pg_catalog.pg_type t on t.oid = needed.oid
  cross join lateral (
    select t.typelem where t.typelem <> 0
    union all select t.typbasetype where t.typtype = 'd'
    union all select a.atttypid from pg_catalog.pg_attribute a
              where t.typtype = 'c' and a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
  ) part (oid)
  where part.oid >= 16384
)
select t.oid::bigint as oid,
       t.typname::text as name,
       case when e.typarray = t.oid then 'array'
            when t.typtype = 'b' then 'base'
            when t.typtype = 'e' then 'enum'
            when t.typtype = 'd' then 'domain'
            when t.typtype = 'c' then 'composite'
            when t.typtype = 'r' then 'range'
            when t.typtype = 'm' then 'multirange'
            else 'base' end as kind,
       case when e.typarray = t.oid then e.oid else 0 end::bigint as element,
       case when t.typtype = 'd' then t.typbasetype else 0 end::bigint as base,
       t.typdelim::text as delimiter,
       coalesce(f.names, '{}') as attribute_names,
       coalesce(f.types, '{}') as attribute_types
from pg_catalog.pg_type t
left join pg_catalog.pg_type e on e.oid = t.typelem and t.typelem <> 0
left join lateral (
  select array_agg(a.attname::text order by a.attnum) as names, array_agg(a.atttypid::bigint order by a.attnum) as types
  from pg_catalog.pg_attribute a
  where t.typtype = 'c' and a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
) f on true
where t.oid >= 16384 and (%(types)s::oid[] is null or t.oid in (select oid from needed));
