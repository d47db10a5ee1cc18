// Package mistakes has a transfer between two accounts, and the usual ways to get it
// wrong. Its tests show what finds each of them: package chaos, or package guardtest.
package mistakes
