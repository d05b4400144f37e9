-- The columns of a relation that can be published at all. Parameter: relation.
select a.attname::text as name,
       a.atttypid::bigint as type_id,
       a.atttypmod as typmod,
       a.attgenerated <> '' as generated,
       c.relreplident = 'f'
       or exists (select 1
                  from pg_catalog.pg_index i
                  where i.indrelid = a.attrelid and a.attnum = any ((i.indkey::int2[])[0:i.indnkeyatts - 1])
                    and case c.relreplident when 'i' then i.indisreplident
                                            when 'd' then i.indisprimary and i.indimmediate
                                            else false end) as is_key
from pg_catalog.pg_attribute a
join pg_catalog.pg_class c on c.oid = a.attrelid
where a.attrelid = %(relation)s and a.attnum > 0 and not a.attisdropped
order by a.attnum;
