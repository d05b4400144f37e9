-- Whoever was granted a group has its slots, too: `mailer/3-of-8` is one of `mailer`.
create or replace function check_group(of_group text) returns void
language plpgsql stable set search_path from current set jit = off as $$
begin
  if exists (select from parts where part = 'consumer' and groups is not null) and not is_owner(caller())
    and not exists (select from parts as p where p.part = 'consumer' and (p.groups is null
        or of_group = any (p.groups) or regexp_replace(of_group, '/\d+-of-\d+$', '') = any (p.groups))
      and exists (select from pg_roles where rolname = p.role) and pg_has_role(caller(), p.role, 'member'))
  then
    raise exception 'the group % is not one of %', of_group, caller() using errcode = 'insufficient_privilege',
      hint = 'The owner of the schema gives it groups: grant_usage(''consumer'', role, groups).';
  end if;
end $$;
