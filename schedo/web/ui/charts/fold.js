// Points of lateness counts, put together for a picture or a table.

// Fold points into columns. Returns {columns: [counts or null], sums}; a column without any data is null.
export function fold(lateness, kinds, rows, per) {
  const points = lateness[kinds[0]].length;
  const columns = [];
  const sums = new Array(rows).fill(0);
  for (let from = points % per; from < points; from += per) {
    let column = null;
    for (const kind of kinds) {
      for (const counts of lateness[kind].slice(from, from + per)) {
        if (!counts) continue;
        column ??= new Array(rows).fill(0);
        counts.forEach((number, row) => { column[row] += number; sums[row] += number; });
      }
    }
    columns.push(column);
  }
  return { columns, sums };
}
