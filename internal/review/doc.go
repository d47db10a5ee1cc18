// Package review answers auditors' questions from the history, in plain words: why a grant was
// rejected, and what became of an operation. Its readers don't program.
//
// [Reader.Why] gathers what is about one entry or one rejection into an [Explanation],
// which writes itself as a page of text or HTML. The words for each reason and stage of a
// rejection are here, and nowhere else.
//
// It reports what the tables say, from several short readings, and doesn't verify them:
// audit.Database.Verify does. Where what is asked for may have been pruned, it says so instead of
// concluding that it never was.
package review
