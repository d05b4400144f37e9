-- The tables of a publication: rights, partitions, and how an old row can be told from others.
-- attnames as JSON: before PostgreSQL 15 the view has no list of columns.
with published as (
  select c.oid, to_jsonb(t) -> 'attnames' as names
  from pg_catalog.pg_publication_tables t
  join pg_catalog.pg_namespace n on n.nspname = t.schemaname
  join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = t.tablename
  where t.pubname = %(publication)s
)
select n.nspname::text as schema_name,
       c.relname::text as table_name,
       c.relispartition as is_partition,
       has_schema_privilege(n.oid, 'usage') as may_use_schema,
       has_table_privilege(c.oid, 'select') as may_select,
       row_security_active(c.oid) as has_row_security,
       (select array_agg(a.attname::text order by a.attnum)
        from pg_catalog.pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
          and coalesce(p.names ? a.attname::text, true)
          and not has_column_privilege(c.oid, a.attnum, 'select')) as unreadable_columns,
       jsonb_array_length(coalesce(p.names, '[]'))
         between 1 and (select count(*) - 1 from pg_catalog.pg_attribute a
                        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as has_column_list,
       exists (select 1 from pg_catalog.pg_index i where i.indrelid = c.oid and i.indisprimary) as has_primary_key,
       c.relreplident <> 'f' and exists (select 1 from pg_catalog.pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attstorage in ('x', 'e'))
         as may_lack_values,
       exists (select 1
        from pg_catalog.pg_class l
        where (l.oid = c.oid and l.relkind <> 'p'
               or l.oid in (select relid from pg_catalog.pg_partition_tree(c.oid) where isleaf and relid <> c.oid))
          and (l.relreplident = 'n'
               or l.relreplident = 'd' and not exists (
                 select 1 from pg_catalog.pg_index i
                 where i.indrelid = l.oid and i.indisprimary and i.indimmediate and i.indisvalid)
               or l.relreplident = 'i' and not exists (
                 select 1 from pg_catalog.pg_index i where i.indrelid = l.oid and i.indisreplident))) as has_no_identity
from published p
join pg_catalog.pg_class c on c.oid = p.oid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
order by 1, 2
