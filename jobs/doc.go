// Package jobs works off the rows of a table of yours, each by one worker at a time, in as many processes as you like.
//
// A job is a row that a query of yours selects: any table, any order, priorities, "not before". [Work] takes the next
// free ones, keeps each for as long as its function runs, and takes it again if the process dies, stands still or is cut
// off for longer than the lock's time to live. The function gets a Runner, for any number of transactions of its own
// with calls to other services in between. Each commits only if no other worker has the row by then, so that what
// finishes the row takes effect once. There is no state but yours: what is done, and what is tried again and when, is in
// your columns.
//
// # When you need it
//
// Not where a transaction may stay open for as long as a job takes: there SELECT … FOR UPDATE SKIP LOCKED is simpler and
// faster, at the price of a connection for each job. Nor where a table of jobs isn't yours to design: river, and queues
// like it, bring theirs, with schedules, retries and a page to look at. They run a job again when its worker seems
// dead, and it may not be: what both write has to be harmless, or goes through a guard (see the guide, "Events with
// river"). You need it where the rows are yours, the work takes seconds or hours and calls other services, and its
// result must not be there twice.
//
// # How it works
//
// One transaction selects and locks candidates, passes over those that somebody owns, draws a token for each of the
// others, claims its fence, and commits: so nothing is taken that an earlier worker may still finish, and its row is as
// the claim found it. Nothing waits for anybody in it, so fifty workers on ten rows get ten between them. What a process
// is done with it gives back in its next such transaction. A row costs that share, and a guarded transaction without a
// claim for each call of the function's.
//
// What Fencekit keeps of a row, its fence, history and lock, is deleted once the queue's "keep" has passed since its
// last claim (10 minutes; the owner of the schema may change fence.queue.keep): so its tables don't grow with the number
// of jobs. Later claims under earlier grants stay rejected, since the queue keeps the highest grant that it deleted. What
// is on hold (fencectl history hold), or has a result of guard.Once, stays.
package jobs
