-- The records of rejections, as a Rejection has them.
select resource, id, reason, stage, json_build_object('epoch', epoch, 'token', token, 'holder', holder) as rejected,
       json_build_object('epoch', current_epoch, 'token', current_token, 'holder', current_holder) as "current",
       current_since, count, first_at, last_at
  from @rejection
