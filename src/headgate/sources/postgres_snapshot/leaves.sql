-- Where the rows of a relation lie: itself, or its partitions. Parameter: relation.
-- Whoever may read some columns alone may not see where a row lies, so must read all of it at once.
select n.nspname::text as schema,
       c.relname::text as name,
       c.relkind::text as kind,
       case when pg_catalog.has_table_privilege(c.oid, 'SELECT')
            then pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::bigint
            else 0 end::bigint as blocks
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.oid = %(relation)s and c.relkind <> 'p'
   or c.oid in (select t.relid from pg_catalog.pg_partition_tree(%(relation)s::bigint::oid::regclass) t where t.isleaf)
      and c.relkind <> 'p'
order by n.nspname, c.relname;
