-- A full server refuses a script at its first write if that needs memory, and lets it go on after
-- one that does not. Only new jobs are to be refused: all else begins with this write of nothing.
call('ZREM', P .. 'due', '')
