-- The tables of some publications, as their rows are sent: with publish_via_partition_root the root, else the leaves.
-- to_jsonb: before PostgreSQL 15 pg_publication_tables has no list of columns, and nothing has a row filter.
-- The columns are null where a publication has no list of them; PostgreSQL 18 lists those that it sends in any case.
-- `shape` changes whenever the table may look different now.
-- `membership` changes whenever the table was taken out and put back, or gets another row filter or list of columns.
select c.oid::bigint as relation_id,
       n.nspname::text as schema,
       c.relname::text as table,
       max((to_jsonb(p) -> 'attnames')::text) as names,
       md5(string_agg(p.pubname || ' ' || b.puballtables::text || coalesce(m.entries, ''), ',' order by p.pubname))
         as membership,
       c.xmin || ' ' || (select sum(pg_catalog.hashtextextended(a.attnum || ' ' || a.xmin, 0))
                         from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attnum > 0)
              || coalesce((select string_agg(' ' || i.indexrelid || ' ' || i.xmin, '' order by i.indexrelid)
                           from pg_catalog.pg_index i where i.indrelid = c.oid), '') as shape
from pg_catalog.pg_publication_tables p
join pg_catalog.pg_publication b on b.pubname = p.pubname
join pg_catalog.pg_namespace n on n.nspname = p.schemaname
join pg_catalog.pg_class c on c.relname = p.tablename and c.relnamespace = n.oid
left join lateral (
  select string_agg(r.oid::text, ' ' order by r.oid) as entries
  from pg_catalog.pg_publication_rel r
  where r.prpubid = b.oid
    and (r.prrelid = c.oid or c.relispartition and r.prrelid in (select pg_catalog.pg_partition_ancestors(c.oid)))
) m on not b.puballtables
where p.pubname = any (%(publications)s)
group by c.oid, c.xmin, n.nspname, c.relname
order by n.nspname, c.relname;
