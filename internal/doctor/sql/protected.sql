-- Protected tables whose protection isn't intact. The check at COMMIT is among the triggers of the schema.
select case problem when 'the table is gone' then 'protection-left' else 'protection-broken' end as finding,
       "table", resource, mode, problem
  from {schema}.protected_table
 where problem not like 'the check at COMMIT%' order by "table"
