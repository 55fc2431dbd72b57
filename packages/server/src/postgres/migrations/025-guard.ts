/** A function that fails with a SQLSTATE of its own, so that a failed guard cannot be taken for anything else. */
export const guard = `
create function offshoot.fail(code text) returns integer language plpgsql volatile as $$
begin
  raise exception using errcode = code, message = 'a condition of the service does not hold';
end
$$;
`
