-- Every column of some tables, with all that a consumer may want to know of it. Any role may ask.
-- `relations` are oids: whatever else the database has costs nothing. `names` are, beside each, the columns that are
-- published, or null for all that a publication without a list of columns sends.
with asked as (
  select u.oid, u.names::jsonb as names
  from unnest(%(relations)s::oid[], %(names)s::text[]) u (oid, names)
)
select c.oid::bigint as relation_id,
       n.nspname::text as schema,
       c.relname::text as table,
       c.relreplident::text as identity,
       a.attname::text as name,
       a.attnum::int as position,
       format_type(a.atttypid, a.atttypmod) as type,
       t.typname::text as type_name,
       tn.nspname::text as type_schema,
       a.atttypid::bigint as type_oid,
       a.atttypmod as typmod,
       case when e.typarray = t.oid then 'array'
            when t.typtype = 'e' then 'enum'
            when t.typtype = 'd' then 'domain'
            when t.typtype = 'c' then 'composite'
            when t.typtype = 'r' then 'range'
            when t.typtype = 'm' then 'multirange'
            else 'base' end as kind,
       not a.attnotnull as nullable,
       case when a.attgenerated = '' then pg_get_expr(d.adbin, d.adrelid) end as default,
       case a.attgenerated when 's' then 'stored' when 'v' then 'virtual' end as generated,
       case a.attidentity when 'a' then 'always' when 'd' then 'by default' end as identity_kind,
       c.relreplident = 'f' or coalesce(a.attnum = any ((k.indkey::int2[])[0:k.indnkeyatts - 1]), false) as key,
       coalesce(asked.names ? a.attname::text, true)
         and (a.attgenerated = '' or current_setting('server_version_num')::int >= 180000 and asked.names is not null)
         as replicated,
       array_position((pk.indkey::int2[])[0:pk.indnkeyatts - 1], a.attnum) as key_place,
       case when e.typarray = t.oid then format_type(e.oid, null) end as element,
       (select array_agg(l.enumlabel::text order by l.enumsortorder) from pg_catalog.pg_enum l
        where l.enumtypid = case when e.typarray = t.oid then e.oid else t.oid end) as labels,
       base.type as base_type,
       base.kind as base_kind,
       (select jsonb_agg(jsonb_build_object('name', f.attname, 'type', format_type(f.atttypid, f.atttypmod))
                         order by f.attnum)
        from pg_catalog.pg_attribute f
        where t.typtype = 'c' and f.attrelid = t.typrelid and f.attnum > 0 and not f.attisdropped) as fields
from asked
join pg_catalog.pg_class c on c.oid = asked.oid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
join pg_catalog.pg_type t on t.oid = a.atttypid
join pg_catalog.pg_namespace tn on tn.oid = t.typnamespace
left join pg_catalog.pg_type e on e.oid = t.typelem and t.typelem <> 0
left join lateral (  -- a domain may be one over another domain: what is at the bottom?
  with recursive chain (typbasetype, typtypmod, typtype, typelem, oid) as (
    select t.typbasetype, t.typtypmod, t.typtype, t.typelem, t.oid where t.typtype = 'd'
    union all
    select under.typbasetype, case when chain.typtypmod >= 0 then chain.typtypmod else under.typtypmod end,
           under.typtype, under.typelem, under.oid
    from chain join pg_catalog.pg_type under on chain.typtype = 'd' and under.oid = chain.typbasetype
  )
  select format_type(chain.oid, chain.typtypmod) as type,
         case when (select x.typarray from pg_catalog.pg_type x where x.oid = chain.typelem) = chain.oid then 'array'
              when chain.typtype = 'e' then 'enum'
              when chain.typtype = 'c' then 'composite'
              when chain.typtype = 'r' then 'range'
              when chain.typtype = 'm' then 'multirange'
              else 'base' end as kind
  from chain where chain.typtype <> 'd'
) base on true
left join pg_catalog.pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
left join pg_catalog.pg_index pk on pk.indrelid = c.oid and pk.indisprimary
left join pg_catalog.pg_index k on k.indrelid = c.oid
  and (c.relreplident = 'i' and k.indisreplident or c.relreplident = 'd' and k.indisprimary and k.indimmediate)
order by n.nspname, c.relname, a.attnum;
