-- The columns of one table, and which unique indexes each is part of. Parameters: schema, table.
-- The places in an index count from 0. An index counts if it covers all rows (no predicate), is made of columns alone, and is checked at once.
select a.attname::text as name,
       a.atttypid::bigint as type_id,
       a.atttypmod as typmod,
       format_type(a.atttypid, a.atttypmod) as type,
       a.attnotnull as is_required,
       c.oid::bigint as relation,
       coalesce((select array_position(i.indkey::smallint[], a.attnum) + 1
                 from pg_catalog.pg_index i
                 where i.indrelid = c.oid and i.indisprimary and a.attnum = any (i.indkey)), 0) as key_place,
       array(select i.indexrelid::bigint
             from pg_catalog.pg_index i
             where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indimmediate
               and i.indpred is null and i.indexprs is null
               and a.attnum = any ((i.indkey::smallint[])[0:i.indnkeyatts - 1])) as unique_indexes
from pg_catalog.pg_attribute a
join pg_catalog.pg_class c on c.oid = a.attrelid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and c.relname = %(table)s and c.relkind in ('r', 'p')
  and a.attnum > 0 and not a.attisdropped
order by a.attnum;
