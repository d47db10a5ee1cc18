// Package review answers auditors' questions from the history, in plain words: why a grant was
// rejected, whether an operation took effect, and what happened in a period. It writes for readers
// who don't program.
//
// [Reader.Why] collects the facts about one entry or one rejection in an [Explanation], which
// writes itself as a page of text or HTML. Only this package has the words for each reason and
// stage of a rejection.
//
// [Reader.Report] says of a period whether anything was written by a holder that no longer held the
// lock. It rests on audit.Database.Verify, of which a single finding makes the answer that the record can't
// be relied on; Why reports what the tables say and doesn't verify them.
//
// Both read by several short statements, in memory that doesn't grow with the history. Where what is asked for may have
// been pruned, they say so instead of concluding that it never was.
package review
