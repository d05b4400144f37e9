-- The published columns of one table, with the types behind domains and arrays.
-- Parameters: schema, table, publications. A publication that does not exist yet takes every column that is stored.
with recursive resolved (oid, base, typmod) as (
    select oid, oid, -1 from pg_catalog.pg_type where typtype <> 'd'
    union all
    select t.oid, r.base, case when t.typtypmod <> -1 then t.typtypmod else r.typmod end
    from pg_catalog.pg_type t
    join resolved r on r.oid = t.typbasetype
    where t.typtype = 'd'
),
-- Before PostgreSQL 15 the view has no attnames, and a publication no list of columns.
published (attnames) as (
    select to_jsonb(p) -> 'attnames'
    from pg_catalog.pg_publication_tables p
    where p.schemaname = %(schema)s and p.tablename = %(table)s and p.pubname = any (%(publications)s)
)
select a.attname::text as name,
       a.atttypid::bigint as oid,
       r.base::bigint as base,
       case when a.atttypmod <> -1 then a.atttypmod else r.typmod end as typmod,
       coalesce(e.oid, 0)::bigint as element,
       coalesce(er.base, 0)::bigint as element_base,
       coalesce(er.typmod, -1) as element_typmod,
       exists (select 1
               from pg_catalog.pg_index i
               where i.indrelid = a.attrelid and a.attnum = any ((i.indkey::int2[])[0:i.indnkeyatts - 1])
                 and case when c.relreplident = 'i' then i.indisreplident else i.indisprimary end) as is_key
from pg_catalog.pg_attribute a
join pg_catalog.pg_class c on c.oid = a.attrelid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join resolved r on r.oid = a.atttypid
left join pg_catalog.pg_type e on e.typarray = r.base
left join resolved er on er.oid = e.oid
where n.nspname = %(schema)s and c.relname = %(table)s and c.relkind in ('r', 'p')
  and a.attnum > 0 and not a.attisdropped
  and case when exists (select 1 from published where attnames is not null)
           then exists (select 1 from published where attnames ? a.attname::text)
             and (a.attgenerated = '' or current_setting('server_version_num')::int >= 180000)
           else a.attgenerated = '' end
order by a.attnum;
