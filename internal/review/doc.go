// Package review answers auditors' questions from the history, in plain words: why a grant was
// rejected, whether an operation took effect, and what happened in a period. It writes for readers
// who don't program.
//
// [Reader.Why] collects the facts about one entry or one rejection in an [Explanation], which
// writes itself as a page of text or HTML. Only this package has the words for each reason and
// stage of a rejection.
//
// [Reader.Report] answers whether a holder wrote in a period after it had lost the lock. It verifies
// the history with audit.Database.Verify; after a single finding the answer is that the record can't
// be relied on. Why reports what the tables say, without verifying them.
//
// Both use several short statements, and memory that doesn't grow with the history. If the answer may
// have been pruned, they say so instead of concluding that it never existed.
package review
