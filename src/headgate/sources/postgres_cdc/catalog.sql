-- Every type that is not built in, with what its values' text form depends on.
-- Arrays are recognised by being some type's typarray: typelem alone would also match point and int2vector.
select t.oid::bigint as oid,
       t.typname::text as name,
       case when e.oid is not null then 'array'
            when t.typtype = 'b' then 'base'
            when t.typtype = 'e' then 'enum'
            when t.typtype = 'd' then 'domain'
            when t.typtype = 'c' then 'composite'
            when t.typtype = 'r' then 'range'
            when t.typtype = 'm' then 'multirange'
            else 'base' end as kind,
       coalesce(e.oid, 0)::bigint as element,
       case when t.typtype = 'd' then t.typbasetype else 0 end::bigint as base,
       t.typdelim::text as delimiter,
       coalesce((select array_agg(a.attname::text order by a.attnum)
                 from pg_catalog.pg_attribute a
                 where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped), '{}') as attribute_names,
       coalesce((select array_agg(a.atttypid::bigint order by a.attnum)
                 from pg_catalog.pg_attribute a
                 where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped), '{}') as attribute_types
from pg_catalog.pg_type t
left join pg_catalog.pg_type e on e.typarray = t.oid
where t.oid >= 16384;
