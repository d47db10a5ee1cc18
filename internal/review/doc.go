// Package review answers auditors' questions from the history, in plain words: why a grant was
// rejected, what became of an operation, and what happened in a period. Its readers don't program.
//
// [Reader.Why] gathers what is about one entry or one rejection into an [Explanation],
// which writes itself as a page of text or HTML. The words for each reason and stage of a
// rejection are here, and nowhere else.
//
// [Reader.Report] says of a period whether anything was written by a holder that no longer held the
// lock. It rests on audit.Database.Verify, of which a single finding makes the answer that the record can't
// be relied on; Why reports what the tables say and doesn't verify them.
//
// Both read by several short statements, in memory that doesn't grow with the history. Where what is asked for may have
// been pruned, they say so instead of concluding that it never was.
package review
